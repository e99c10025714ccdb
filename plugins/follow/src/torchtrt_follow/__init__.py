"""Models whose calls run on engines, while their weights and their structure change."""

from torchtrt_follow.followed import follow

__all__ = ["follow"]
