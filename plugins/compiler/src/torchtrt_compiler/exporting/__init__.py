"""From a model to an exported program: by ``torch.export``, or by the front end of another format."""
