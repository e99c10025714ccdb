"""The Python interfaces of the versions: descriptions, checks of arguments, and the assembled namespaces."""
