"""torchvision's operators for detection: non-maximum suppression, pooling of regions, deformable convolution."""
