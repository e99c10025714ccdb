"""An object that keeps bytes by key, as a ``torchtrt.ByteStore`` does."""


class Store:
    """Bytes by key, as a program keeps them."""

    def __init__(self):
        self.kept = {}

    def load(self, key):
        return self.kept.get(key)

    def save(self, key, data):
        assert type(data) is bytes
        self.kept[key] = data

    def __deepcopy__(self, memo):
        raise TypeError("a connection to a database cannot be copied")
