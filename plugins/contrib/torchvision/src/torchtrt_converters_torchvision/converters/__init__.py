"""The converters of this pack, one module for each family of ops."""
