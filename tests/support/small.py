"""A small model, exported and compiled by many tests."""

import torch
from torch import nn


class Small(nn.Module):
    """Nine ops, of which ``igamma`` has no converter."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        """Linear layers on both sides of igamma."""
        y = torch.tanh(torch.relu(self.first(x)) * 0.5)
        y = torch.igamma(y + 2, y + 3)
        return torch.sigmoid(torch.relu(self.second(y))) + x
