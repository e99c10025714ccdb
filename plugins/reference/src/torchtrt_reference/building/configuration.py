"""``IBuilderConfig``, ``IOptimizationProfile`` and the small objects of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torchtrt_reference.implementation import Implementation

Ranges = dict[str, tuple[tuple[int, ...], ...]]
TIMING_CACHE = b"reference timing cache "


class HostMemory(Implementation, bytearray):
    """Bytes that a build produced."""

    _implements = ("IHostMemory",)
    _checks_arguments = True
    _is_called_inside = True

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return len(self)

    @property
    def dtype(self) -> Any:
        """The type of an element: bytes."""
        return self._trt.DataType.INT8


class OptimizationProfile(Implementation):
    """The ranges of input shapes that an engine must serve."""

    _implements = ("IOptimizationProfile",)
    _stored: ClassVar[Mapping[str, Any]] = {"extra_memory_target": 1.0, "profile_stream": 0}

    def _initialize(self) -> None:
        self._shapes: Ranges = {}
        self._ranges: Ranges = {}
        self._values: dict[str, Any] = {}

    def set_shape(
        self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]
    ) -> None:
        """Sets the minimum, optimum and maximum shape of an input. The build checks their order.

        Raises:
            RuntimeError: The ranks differ, or a dimension is negative.
        """
        shapes = (min, opt, max)
        if len({*map(len, shapes)}) > 1 or any(size < 0 for shape in shapes for size in shape):
            message = f"The shapes {shapes} provided for {input!r} are inconsistent: equal ranks, no negative sizes."
            raise RuntimeError(message)
        self._shapes[input] = shapes

    def get_shape(self, input: str) -> list[Any]:
        """Returns the three shapes of an input; nothing if they are not set."""
        return [self._trt.Dims(shape) for shape in self._shapes.get(input, ())]

    def set_shape_input(
        self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> None:
        """Sets the minimum, optimum and maximum values of a shape input.

        Raises:
            RuntimeError: The lengths differ, or the values are not in order.
        """
        ranges = (tuple(min), tuple(opt), tuple(max))
        if not in_order(ranges):
            message = (
                f"The values {ranges} provided for shape tensor {input!r} are inconsistent: "
                "it needs min <= opt <= max."
            )
            raise RuntimeError(message)
        self._ranges[input] = ranges

    def get_shape_input(self, input: str) -> list[list[int]]:
        """Returns the three values of a shape input; nothing if they are not set."""
        return [list(values) for values in self._ranges.get(input, ())]


def in_order(three: tuple[tuple[int, ...], ...]) -> bool:
    """Returns whether minimum, optimum and maximum have equally many numbers and are in this order."""
    minimum, optimum, maximum = three
    return len(minimum) == len(optimum) == len(maximum) and all(
        a <= b <= c for a, b, c in zip(minimum, optimum, maximum, strict=True)
    )


class BuilderConfig(Implementation):
    """The configuration of a build. Options about GPU kernels are kept and have no effect on the reference."""

    _implements = ("IBuilderConfig",)
    _stored: ClassVar[Mapping[str, Any]] = {
        "min_timing_iterations": 1,
        "avg_timing_iterations": 1,
        "int8_calibrator": None,
        "engine_capability": "STANDARD",
        "max_workspace_size": 0,
        "default_device_type": "GPU",
        "DLA_core": -1,
        "quantization_flags": 0,
        "profile_stream": 0,
        "profiling_verbosity": "LAYER_NAMES_ONLY",
        "algorithm_selector": None,
        "builder_optimization_level": 3,
        "hardware_compatibility_level": "NONE",
        "plugins_to_serialize": [],
        "max_aux_streams": -1,
        "max_num_tactics": -1,
        "runtime_platform": "SAME_AS_BUILD",
        "progress_monitor": None,
        "tiling_optimization_level": "NONE",
        "l2_limit_for_tiling": -1,
        "remote_auto_tuning_config": "",
        "build_route": "",
        "all_build_routes": "",
        "flags": 0,
    }
    _values: dict[str, Any]

    def _initialize(self) -> None:
        self._values = {}
        self._profiles: list[OptimizationProfile] = []
        self._calibration_profile: Any = None
        self._pools: dict[str, int] = {}
        self._previews: set[str] = set()
        self._tactic_sources = 0
        self._timing_cache: Any = None
        self._devices: dict[int, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Returns every option to its default."""
        self._values = {"flags": 0}
        self._profiles.clear()
        if "TF32" in self._trt.BuilderFlag.__members__:
            self.set_flag(self._trt.BuilderFlag.TF32)

    def set_flag(self, flag: Any) -> None:
        """Sets a flag."""
        self._values["flags"] |= 1 << int(flag)

    def clear_flag(self, flag: Any) -> None:
        """Clears a flag."""
        self._values["flags"] &= ~(1 << int(flag))

    def get_flag(self, flag: Any) -> bool:
        """Returns whether a flag is set."""
        return bool(self._values["flags"] >> int(flag) & 1)

    def _has_flag(self, name: str) -> bool:
        member = self._trt.BuilderFlag.__members__.get(name)
        return member is not None and self.get_flag(member)

    def set_quantization_flag(self, flag: Any) -> None:
        """Sets a flag of implicit quantization."""
        self._values["quantization_flags"] = self._values.get("quantization_flags", 0) | 1 << int(
            flag
        )

    def clear_quantization_flag(self, flag: Any) -> None:
        """Clears a flag of implicit quantization."""
        self._values["quantization_flags"] = self._values.get("quantization_flags", 0) & ~(
            1 << int(flag)
        )

    def get_quantization_flag(self, flag: Any) -> bool:
        """Returns whether a flag of implicit quantization is set."""
        return bool(self._values.get("quantization_flags", 0) >> int(flag) & 1)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        """Sets the limit of a memory pool, in bytes."""
        self._pools[pool.name] = pool_size

    def get_memory_pool_limit(self, pool: Any) -> int:
        """Returns the limit of a memory pool, in bytes."""
        return self._pools.get(pool.name, 0)

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        """Adds a profile; returns its index."""
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def set_calibration_profile(self, profile: OptimizationProfile) -> bool:
        """Sets the profile of implicit quantization, which the reference does not do."""
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> Any:
        """Returns the profile of implicit quantization."""
        return self._calibration_profile

    @property
    def num_optimization_profiles(self) -> int:
        """The number of profiles."""
        return len(self._profiles)

    def set_device_type(self, layer: Any, device_type: Any) -> None:
        """Chooses the processor of a layer."""
        self._devices[id(layer)] = device_type

    def get_device_type(self, layer: Any) -> Any:
        """Returns the processor of a layer."""
        return self._devices.get(id(layer), self._trt.DeviceType.GPU)

    def is_device_type_set(self, layer: Any) -> bool:
        """Returns whether a processor was chosen for a layer."""
        return id(layer) in self._devices

    def reset_device_type(self, layer: Any) -> None:
        """Removes the processor of a layer."""
        self._devices.pop(id(layer), None)

    def can_run_on_DLA(self, layer: Any) -> bool:  # noqa: ARG002 - TensorRT's name
        """Returns whether a layer can run on a DLA; the reference has none."""
        return False

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        """Sets where kernels may come from; the reference has one source, PyTorch."""
        self._tactic_sources = tactic_sources
        return True

    def get_tactic_sources(self) -> int:
        """Returns where kernels may come from."""
        return self._tactic_sources

    def create_timing_cache(self, serialized_timing_cache: Any) -> Any:
        """Returns a timing cache from its bytes, none for an empty one; None if the bytes are no timing cache."""
        data = bytes(serialized_timing_cache)
        if data and not data.startswith(TIMING_CACHE):
            return None
        return self._trt.ITimingCache._made(data)

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        """Attaches a timing cache; returns whether it is of this version (or that does not matter)."""
        if not (cache._is_ours() or ignore_mismatch):
            return False
        self._timing_cache = cache
        return True

    def get_timing_cache(self) -> Any:
        """Returns the attached timing cache."""
        return self._timing_cache

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        """Switches a preview feature."""
        (self._previews.add if enable else self._previews.discard)(feature.name)

    def get_preview_feature(self, feature: Any) -> bool:
        """Returns whether a preview feature is on."""
        return feature.name in self._previews


class TimingCache(Implementation):
    """A timing cache. The reference times nothing, so it holds a header with the version and no entries."""

    _implements = ("ITimingCache",)

    def _initialize(self, data: bytes) -> None:
        self._data = data or self._header()

    @classmethod
    def _header(cls) -> bytes:
        return TIMING_CACHE + str(cls._trt.__version__).encode()

    def _is_ours(self) -> bool:
        return self._data == self._header()

    def serialize(self) -> Any:
        """Returns the bytes."""
        return self._trt.IHostMemory(self._data)

    def combine(self, input_cache: TimingCache, ignore_mismatch: bool) -> bool:
        """Returns whether another cache is of this version. There are no entries to add."""
        return input_cache._is_ours() or ignore_mismatch

    def reset(self) -> bool:
        """Removes the entries."""
        self._data = self._header()
        return True

    def queryKeys(self) -> list[Any]:
        """Returns the keys: none."""
        return []

    def query(self, key: Any) -> Any:  # noqa: ARG002
        """Returns the entry of a key: None."""
        return None

    def update(self, key: Any, value: Any) -> bool:  # noqa: ARG002
        """Changes an entry: there are none to change."""
        return False
