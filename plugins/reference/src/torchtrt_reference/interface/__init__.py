"""What a caller of TensorRT's Python interface sees: the classes of a version, and the checks of their arguments."""
