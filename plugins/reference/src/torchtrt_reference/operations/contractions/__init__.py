"""Many elements that become one: sums, products and windows."""
