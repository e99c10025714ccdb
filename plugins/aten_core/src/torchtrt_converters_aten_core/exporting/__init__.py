"""What PyTorch is told while models are exported, so that ops stay whole."""
