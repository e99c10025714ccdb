"""Engines and timings in objects of the program's own."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from torch import nn

import torchtrt
from plugins.compiler.tests.cached import BASE, VARYING, compiled, hits
from tests.support.stores import Store
from torchtrt.errors import CacheWarning, SettingsError
from torchtrt_compiler.cache.folder import CacheFolder


class Failing(Store):
    """A store whose methods fail, or not."""

    def __init__(self, method, error):
        super().__init__()
        self.method, self.error = method, error

    def load(self, key):
        if self.method == "load":
            raise self.error
        return super().load(key)

    def save(self, key, data):
        if self.method == "save":
            raise self.error
        super().save(key, data)


def engine_keys(store):
    """Returns the keys of engines."""
    return [key for key in store.kept if key.endswith(".engine")]


def test_an_object_keeps_engines_and_timings():
    """Under keys that are names of files, the second compilation builds nothing."""
    store = Store()

    assert isinstance(store, torchtrt.ByteStore)
    assert [False] == hits(compiled(BASE, store, [VARYING]))
    again = compiled(BASE, store, [VARYING])

    assert [True] == hits(again)
    assert all(re.fullmatch(r"[0-9a-f]+\.(engine|timings)", key) for key in store.kept)
    assert 2 == len(store.kept)
    x = torch.rand(3, 4)
    torch.testing.assert_close(again(x), BASE(x))


def test_keys_are_those_of_a_folder(tmp_path):
    """So engines can move from one to the other."""
    store = Store()
    compiled(BASE, tmp_path, [VARYING])
    for path in (*tmp_path.glob("engines/*"), *tmp_path.glob("timings/*")):
        store.save(path.name, path.read_bytes())

    assert [True] == hits(compiled(BASE, store, [VARYING]))


def test_an_object_gets_engines_whose_weights_are_replaced():
    """As a folder does: another checkpoint is refitted, and not built."""
    store = Store()
    first, second = (nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval() for _ in range(2))
    compiled(first, store, [VARYING], immutable_weights=False)
    again = compiled(second, store, [VARYING], immutable_weights=False)
    x = torch.rand(2, 4)

    assert [True] == hits(again)
    torch.testing.assert_close(again(x), second(x))


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "text", "other engine"])
def test_an_unusable_entry_is_a_miss_with_a_warning(damage):
    """The engine is built and saved again."""
    store = Store()
    compiled(BASE, store, [VARYING])
    (key,) = engine_keys(store)
    data = store.kept[key]
    other = Store()
    compiled(nn.Sequential(nn.Linear(4, 9), nn.ReLU()), other, [VARYING])
    store.kept[key] = {
        "cut": data[: len(data) // 2],
        "bit": data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
        "empty": b"",
        "text": b"TRTCACHE but then something else",
        "other engine": other.kept[engine_keys(other)[0]],
    }[damage]
    x = torch.rand(2, 4)

    with pytest.warns(CacheWarning, match=rf"Store returned '{key}', which is unusable"):
        again = compiled(BASE, store, [VARYING])

    assert [False] == hits(again)
    torch.testing.assert_close(again(x), BASE(x))
    assert [True] == hits(compiled(BASE, store, [VARYING]))


def test_timings_that_are_none_are_a_miss_with_a_warning():
    """And are replaced by those of the build."""
    store = Store()
    compiled(BASE, store, [VARYING])
    (key,) = store.kept.keys() - engine_keys(store)
    timings = store.kept[key]
    store.kept = {key: b"no timings"}

    with pytest.warns(CacheWarning, match=rf"'{key}', which is no timings"):
        compiled(BASE, store, [VARYING])

    assert timings == store.kept[key]


@pytest.mark.parametrize("method", ["load", "save"])
def test_an_error_of_the_object_is_a_warning_that_names_it(method):
    """Compiling goes on: a cache is never needed."""
    store = Failing(method, ConnectionError("no route"))
    wanted = rf"{method}\('[0-9a-f]+.engine'\) of .*\.Failing raised ConnectionError: no route"

    with pytest.warns(CacheWarning) as warned:
        model = compiled(BASE, store, [VARYING])

    assert any(re.search(wanted, str(warning.message)) for warning in warned)
    assert {__file__.replace("test_cache_objects", "cached")} == {
        warning.filename for warning in warned
    }
    assert [False] == hits(model)


def test_what_an_object_returns_must_be_bytes():
    """Other buffers of bytes are taken, too."""
    store = Store()
    compiled(BASE, store, [VARYING])
    (key,) = engine_keys(store)
    store.kept[key] = bytearray(store.kept[key])
    assert [True] == hits(compiled(BASE, store, [VARYING]))

    store.kept[key] = "text"
    with pytest.warns(CacheWarning, match=r"Store returned a str, not bytes"):
        assert [False] == hits(compiled(BASE, store, [VARYING]))


def test_timings_are_kept_without_engines(tmp_path):
    """In a folder or an object; beside engines that are elsewhere."""
    store = Store()
    compiled(BASE, False, [VARYING], timing_cache=store)
    assert [".timings"] == [key[key.index(".") :] for key in store.kept]
    compiled(BASE, None, [VARYING], timing_cache=tmp_path / "timings")
    assert 1 == len(list(tmp_path.glob("timings/timings/*.timings")))
    assert [] == CacheFolder(tmp_path / "timings").entries()

    compiled(BASE, tmp_path / "engines", [VARYING], timing_cache=tmp_path / "timings")
    assert 1 == len(CacheFolder(tmp_path / "engines").entries())
    assert [] == list(tmp_path.glob("engines/timings/*"))


def test_a_model_is_saved_and_copied_without_the_object(tmp_path):
    """It may be a connection."""
    store = Store()
    model = compiled(BASE, store, [VARYING], timing_cache=store)
    assert copy.deepcopy(model).settings.engine_cache is store
    torchtrt.save(model, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    assert loaded.settings.engine_cache is None
    assert loaded.settings.timing_cache is None
    assert pickle.loads(pickle.dumps(model)).settings.engine_cache is None
    x = torch.rand(2, 4)
    assert torch.equal(model(x), loaded(x))


def test_an_object_may_be_a_dictionary(tmp_path):
    """It is a store first: a saved model has no setting of it."""

    class Kept(dict):
        load, save = dict.get, dict.__setitem__

    store = Kept()
    torchtrt.save(compiled(BASE, store, [VARYING]), tmp_path / "model.pt2")

    assert store
    assert torchtrt.load(tmp_path / "model.pt2").settings.engine_cache is None


@pytest.mark.parametrize("unusable", [Store, object(), {"load": 1}])
def test_another_object_is_refused(unusable):
    """A class of such objects is none."""
    with pytest.raises(SettingsError, match="an object with the methods load and save"):
        torchtrt.CompilationSettings(engine_cache=unusable)
    with pytest.raises(SettingsError, match="an object with the methods load and save"):
        torchtrt.CompilationSettings(timing_cache=unusable)


def test_settings_with_an_object_can_be_hashed():
    """Whether the object itself can be or not."""

    class Unhashable(Store):
        __hash__ = None

    store = Unhashable()
    both = [torchtrt.CompilationSettings(engine_cache=store) for _ in range(2)]
    assert 1 == len(set(both))
