"""The agreement suite: one table of small networks, run by NVIDIA's TensorRT 8.6.0 and by the reference."""
