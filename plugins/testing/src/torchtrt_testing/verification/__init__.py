"""The verification of a TensorRT: everything with a known answer, in worker processes, with a report."""
