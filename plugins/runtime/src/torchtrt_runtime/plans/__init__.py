"""Plans as files: compiled models that become one, and plans of any origin that become modules."""
