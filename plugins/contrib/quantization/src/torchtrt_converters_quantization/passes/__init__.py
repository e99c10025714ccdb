"""The lowering pass of this pack: every library's quantization as the ops of ``torchtrt_quantization``."""
