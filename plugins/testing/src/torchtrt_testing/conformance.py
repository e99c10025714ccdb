"""The rules for every converter pack, as a class of tests to subclass."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

import torchtrt
from torchtrt.contract import (
    check_decomposition,
    qualified_function,
)
from torchtrt.errors import FullCompilationError, TorchTRTError, did_you_mean
from torchtrt.packs import (
    API_VERSION,
    PACKS,
    ConverterPriority,
    LoadedPack,
    current_packs,
    loaded_packs,
    problems,
)
from torchtrt.packs.problem import describe
from torchtrt.packs.registrations import Registration
from torchtrt.targets import canonical_spelling, parse_target, qualified_name
from torchtrt.tensorrt import dtype_name
from torchtrt.torch_internals import OpOverload
from torchtrt_testing import loading_effects, nodes
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import (
    check_case,
    dtypes_lacking,
    export,
    is_expected_rejection,
)
from torchtrt_testing.conformance_checks import (
    cases_beside,
    cases_of_others,
    catalogue_fault,
    check_converter,
    faults_of_validators,
    gives_something,
    is_custom,
    is_listed,
    parametrize,
    validators_of,
    why_missing,
)
from torchtrt_testing.joint_checks import agreeing
from torchtrt_testing.tensors import USUAL

FIXED, VARYING = "fixed sizes", "varying sizes"
_AGREEING: dict[Any, frozenset[OpCase]] = {}
"""The cases that agree with PyTorch, by the class, the cases of one program, their sizes and the TensorRT."""


class PackConformance:
    """The tests that every converter pack should pass. Subclass it, and name your pack.

    .. code-block:: python

        class TestVision(PackConformance):
            pack = "vision"
            cases = [op_case("vision::soft_clip", "batch length", 2.0)]

    A test of yours overrides the one of the same name. Mark it ``xfail`` with a reason, rather than
    leave it out, where the pack cannot keep it yet.

    Attributes:
        pack: The pack's name.
        cases: Calls that are compared with PyTorch for each dtype, with fixed and with dynamic sizes. They run on
            every version of the reference TensorRT, or on the real one if it is in use.
        op_info: Names of PyTorch's own database of ops, such as ``"nn.functional.gelu"``: every
            sample of these that is converted must be right.
        op_info_dtypes: The dtypes of these samples.
        sizes: ``("fixed sizes", "varying sizes")``, or one of them.
        without_case: Ops that no case can call, and why.
        missing_ops: Ops that this PyTorch may lack, and why, such as the version that has them.
        imports: Libraries to import first, for the ops that they register.
        may_import: Packages and modules that loading the pack may import, although that takes time.
        readme: The page that lists the ops; the README beside the pack's ``pyproject.toml`` if omitted.
        opcheck: The tests of ``torch.library.opcheck`` for the pack's custom ops.
        settings: Settings of the compilations.
        exported_since: The oldest PyTorch that exports every case, such as ``"2.13"``. On an older one, a case that
            PyTorch does not export is skipped; without a version, it fails on every PyTorch.
    """

    pack: str = ""
    cases: Sequence[OpCase] = ()
    op_info: Sequence[str] = ()
    op_info_dtypes: Sequence[torch.dtype] = (torch.float32, torch.float16, torch.int64, torch.bool)
    sizes: Sequence[str] = (FIXED, VARYING)
    without_case: Mapping[str, str] = {}
    missing_ops: Mapping[str, str] = {}
    imports: Sequence[str] = ()
    may_import: Sequence[str] = ()
    readme: Path | None = None
    opcheck: Sequence[str] = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    settings: Mapping[str, Any] = {}
    exported_since: str = ""

    def is_expected_rejection(self, error: FullCompilationError) -> bool:
        """Returns whether a case may stay in PyTorch for this reason, such as what a version of TensorRT cannot do.

        By default no case may.
        """
        del error
        return False

    # Who the pack is

    @pytest.fixture(autouse=True)
    def _skip_without_the_pack(self, request: pytest.FixtureRequest) -> None:
        """Leaves it to one test to fail if the pack is not in use; the others are skipped for that reason."""
        if (
            request.node.originalname != "test_it_is_installed_and_in_use"
            and not self._pack_in_use()
        ):
            pytest.skip(f"the pack {self.pack!r} is not in use")

    def test_it_is_installed_and_in_use(self) -> None:
        """Its names follow from each other, its versions fit, its hooks are accepted."""
        assert self.loaded.info.name == self.pack

    def test_nothing_is_wrong_with_it(self) -> None:
        """No problem was recorded while it was loaded or since."""
        recorded = [str(problem) for problem in problems() if problem.pack == self.pack]

        assert not recorded, "\n".join(recorded)

    def test_it_says_who_it_is(self) -> None:
        """A summary for listings, the contract that it is written for, and the versions of PyTorch and TensorRT."""
        pack = self.loaded.pack

        assert pack.summary, (
            f"ConverterPack({pack.name!r}, summary=...) is missing, which users read"
        )
        assert pack.api[0] == API_VERSION[0], f"it is for contract {pack.api}, of {API_VERSION}"
        for name in ("torch", "tensorrt"):
            assert getattr(pack, name), (
                f"ConverterPack({pack.name!r}, {name}=...) is missing: the versions with which it works"
            )

    def test_its_distribution_requires_torchtrt(self) -> None:
        """An installation brings a torchtrt that the pack works with."""
        from importlib.metadata import requires

        lines = requires(self.loaded.info.distribution) or ()
        names = [re.split(r"[^\w.-]", line)[0].lower() for line in lines]

        assert "torchtrt" not in names, (
            "dependencies name 'torchtrt', an empty placeholder on the public index; write 'torchtrt-core'"
        )
        assert {"torchtrt-core", "torchtrt-all"} & {*names}, (
            f"dependencies of {self.loaded.info.distribution} are {names}, without torchtrt-core"
        )

    # What loading it does

    def test_loading_it_is_light(self) -> None:
        """It imports nothing but torchtrt, PyTorch and its own modules, and of PyTorch nothing that takes long."""
        imported = loading_effects.load_in_new_process(self.pack, tuple(self.imports)).imported
        foreign_modules = loading_effects.foreign(imported, self.may_import)

        assert not foreign_modules, (
            f"Loading {self.pack} imports {', '.join(foreign_modules)}. Import it in the functions that need it."
        )

    def test_loading_it_changes_nothing_else(self) -> None:
        """Neither Python's settings nor PyTorch's, nor functions of others; and it prints nothing."""
        loading = loading_effects.load_in_new_process(self.pack, tuple(self.imports))

        assert not loading.changed, (
            f"Loading {self.pack} has side effects: {'; '.join(loading.changed)}."
        )
        assert not loading.printed, f"Loading {self.pack} prints {loading.printed!r}."

    def test_loading_it_twice_gives_the_same(self) -> None:
        """In one process after its modules are forgotten, and in another with other hashes."""
        first = loading_effects.load_in_new_process(self.pack, tuple(self.imports))
        other = loading_effects.load_in_new_process(self.pack, tuple(self.imports), seed=1)

        assert first.contents == first.again
        assert first.contents == other.contents

    # What it registers

    def test_every_op_exists(self) -> None:
        """No converter or decomposition waits for an op that PyTorch and the imported libraries do not have."""
        named: list[Any] = [registration.target for registration in self.registrations]
        named += [decomposition.target for decomposition in self.loaded.pack.decompositions]
        missing = {name for name in named if isinstance(name, str) and why_missing(name)}
        missing -= set(map(canonical_spelling, self.missing_ops))

        assert not missing, "\n".join(
            (
                *filter(None, map(why_missing, sorted(missing))),
                "List the library that registers an op in `imports`, or the op in `missing_ops` with the reason.",
            )
        )

    def test_every_function_has_the_parameters_of_its_op(self) -> None:
        """Those of ops that came later than the pack, too: the others are refused when they are registered."""
        check_fully = functools.partial(check_decomposition, with_defaults=True)
        functions = [
            (entry.target, entry.support.converter_implementation, check_converter)
            for entry in self.registrations
        ]
        functions += [
            (entry.target, entry.function, check_fully) for entry in self.loaded.pack.decompositions
        ]
        wrong = []
        for target, function, check in functions:
            try:
                check(function, parse_target(target))
            except TorchTRTError as error:
                if not isinstance(target, str) or not why_missing(target):
                    wrong.append(f"{qualified_function(function)}: {describe(error)}")

        assert not wrong, "\n".join(wrong)

    def test_validators_answer_and_change_nothing(self) -> None:
        """Of nodes with several dtypes, ranks and dynamic sizes; the test of a case checks the case's own nodes.

        A validator that compares a dynamic size would fix it for the whole program, and raises here.
        """
        validators = validators_of(self.loaded)
        ops = [target for target in validators if isinstance(target, OpOverload)]
        wrong = faults_of_validators(
            validators, (node for op in ops for node in nodes.nodes_of(op))
        )

        assert not wrong, "\n".join(wrong)

    def test_the_readme_lists_every_op(self) -> None:
        """The page describes to users what the pack is for. ``aten.max_pool*`` stands for several."""
        page = self._readme()
        words = set(re.findall(r"[\w:.*]+", page.read_text(encoding="utf-8")))
        patterns = [
            word.replace("::", ".") for word in words if "." in word.strip(".") or "::" in word
        ]
        missing = [name for name in sorted(self._op_names()) if not is_listed(name, patterns)]

        assert not missing, f"{page} does not name {', '.join(missing)}"

    def test_every_op_has_a_case(self) -> None:
        """Each converter and decomposition is compared with PyTorch."""
        tried = (*self.cases, *self._overridden_cases())
        covered = {
            qualified_name(parse_target(op))
            for case in tried
            for op in (*case.ops, *case.decomposed)
        }
        covered |= {
            qualified_name(case.function) for case in tried if isinstance(case.function, OpOverload)
        }
        missing = sorted(
            self._op_names() - covered - set(map(canonical_spelling, self.without_case))
        )

        assert not missing, (
            f"No case calls {', '.join(missing)}. Add op_case(...) or "
            "decomposition_case(...) to `cases`, or the op to `without_case`, and why."
        )

    def test_its_catalogue_lists_every_op(self) -> None:
        """``catalogue.json`` in its package, if there is one, lists what the pack provides."""
        fault = catalogue_fault(self.loaded)

        assert not fault, f"{fault} Run `torchtrt catalogue write {self.pack}`."

    def test_cases_have_names_of_their_own(self) -> None:
        """A case that fails is found by its name."""
        names = [case.label for case in self.cases]

        assert not {name for name in names if names.count(name) > 1}

    # What its converters compute

    def test_a_case_agrees_with_pytorch(
        self, case: OpCase, sizes: str, tensorrt: str, request: pytest.FixtureRequest
    ) -> None:
        """An engine gives PyTorch's values, dtypes and shapes; or PyTorch runs the op for the case's reason.

        Cases that agree in one program with others pass; any other is compiled alone.
        """
        if case not in self._agreeing_together(case, sizes, tensorrt, request):
            self._check(case, sizes, tensorrt, self.is_expected_rejection)

    def _agreeing_together(
        self, case: OpCase, sizes: str, tensorrt: str, request: pytest.FixtureRequest
    ) -> frozenset[OpCase]:
        """Returns the cases that agree in the program of a case and of those that are tested next to it."""
        cases = cases_beside(request.node, case, sizes, tensorrt)
        on = type(self), cases, sizes, tensorrt
        if on not in _AGREEING:
            with torchtrt.use_tensorrt(tensorrt):
                _AGREEING[on] = agreeing(
                    [case for case in cases if not dtypes_lacking(case)],
                    sizes == VARYING,
                    self.settings,
                    lambda nodes: faults_of_validators(validators_of(self.loaded), nodes),
                )
        return _AGREEING[on]

    def test_an_override_agrees_with_pytorch(self, override: OpCase, tensorrt: str) -> None:
        """With this pack's HIGH converters before theirs, the first-party packs' own cases stay right."""

        def is_expected(error: FullCompilationError) -> bool:
            return is_expected_rejection(error) or self.is_expected_rejection(error)

        self._check(override, VARYING, tensorrt, is_expected)

    def _check(
        self,
        case: OpCase,
        sizes: str,
        tensorrt: str,
        is_expected: Callable[[FullCompilationError], bool],
    ) -> None:
        """Checks a case on a TensorRT, unless TensorRT lacks its dtypes or the pack expects the rejection."""
        with torchtrt.use_tensorrt(tensorrt):
            lacking = () if case.rejected else dtypes_lacking(case)
            if lacking:
                pytest.skip(f"{tensorrt} has no {', '.join(map(str, lacking))}")
            exported = self._exported(case, sizes == VARYING)
            wrong = faults_of_validators(validators_of(self.loaded), exported.graph.nodes)
            assert not wrong, "\n".join(wrong)
            try:
                check_case(case, varying=sizes == VARYING, settings=self.settings)
            except FullCompilationError as error:
                if all("tensorrt-version" in missing_op.codes for missing_op in error.missing):
                    pytest.skip(error.missing[0].reason)
                if not is_expected(error):
                    raise

    def _exported(self, case: OpCase, varying: bool) -> torch.export.ExportedProgram:
        try:
            return export(case, varying)
        except Exception as error:
            if not TorchVersion(torch.__version__) < (self.exported_since or "0"):
                raise
            pytest.skip(f"PyTorch {torch.__version__} does not export it: {type(error).__name__}")

    def test_pytorchs_samples_are_right(
        self, op_info: str, dtype: torch.dtype, tensorrt: str
    ) -> None:
        """Every sample of PyTorch's own database is computed as PyTorch does, or rejected."""
        from torchtrt_compiler.coverage import CORRECT, CRASHED, WRONG
        from torchtrt_testing.comparison import eager
        from torchtrt_testing.op_info import ops, samples_of
        from torchtrt_testing.outcome import (
            export_sample,
            outcome,
            quietly,
        )

        if op_info not in ops():
            hint = did_you_mean(op_info, ops(), "torch.testing._internal has the names in `op_db`.")
            pytest.fail(
                f"`op_info` names {op_info!r}, which PyTorch's database does not have. {hint}",
                pytrace=False,
            )
        kinds, wrong = [], []
        for sample in samples_of(op_info, dtype):
            with quietly(), torchtrt.use_tensorrt(tensorrt):
                try:
                    expected, exported = eager(sample), export_sample(sample)
                except Exception:  # PyTorch itself does not run or export it
                    continue
                result = outcome(sample, exported, expected, **self.settings)
            kinds.append(result.kind)
            if result.kind in (WRONG, CRASHED):
                wrong.append(f"{sample} {sample.describe()}: {result.reason}")
        assert not wrong, "\n".join(wrong)
        if CORRECT not in kinds:
            pytest.skip(f"none of {len(kinds)} samples is converted")

    def test_custom_ops_are_registered_as_pytorch_wants(self, custom_op: OpCase) -> None:
        """``torch.library.opcheck`` finds nothing wrong: the schema, the fake kernel, tracing."""
        args, kwargs = custom_op.arguments(custom_op.inputs(USUAL))

        op: Any = custom_op.function
        torch.library.opcheck(op, args, kwargs, test_utils=tuple(self.opcheck))

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Makes a test of every case, size and TensorRT. pytest calls it."""
        unknown = {*self.sizes} - {FIXED, VARYING}
        if unknown or not self.sizes:
            raise ValueError(f"sizes={self.sizes!r}: write {FIXED!r}, {VARYING!r}, or both.")
        self._import_libraries()
        names = set(metafunc.fixturenames)
        if {"case", "sizes"} <= names:
            rows = [
                pytest.param(case, sizes, id=f"{case.label}-{sizes.split()[0]}")
                for base_case in self.cases
                for case in base_case.each_dtype()
                for sizes in self._sizes_of(case)
            ]
            parametrize(metafunc, ("case", "sizes"), rows, "the pack has no cases")
        if "override" in names:
            rows = [pytest.param(case, id=case.label) for case in self._overridden_cases()]
            parametrize(
                metafunc, ("override",), rows, "the pack overrides no first-party converter"
            )
        if {"op_info", "dtype"} <= names:
            rows = [
                pytest.param(name, dtype, id=f"{name}-{dtype_name(dtype)}")
                for name in self.op_info
                for dtype in self.op_info_dtypes
            ]
            reason = "the class names no ops of PyTorch's database in `op_info`"
            parametrize(metafunc, ("op_info", "dtype"), rows, reason)
        if "custom_op" in names:
            custom = {case.function: case for case in self.cases if is_custom(case.function)}
            rows = [pytest.param(case, id=case.label) for case in custom.values()]
            parametrize(metafunc, ("custom_op",), rows, "no case calls a custom op")

    # What the tests need of the pack

    @property
    def loaded(self) -> LoadedPack:
        """The pack in use."""
        if not self.pack:
            pytest.fail(
                f"{type(self).__name__} names no pack: write pack = 'vision' in it.", pytrace=False
            )
        self._import_libraries()
        if loaded_pack := self._pack_in_use():
            return loaded_pack
        wrong = [str(problem) for problem in problems() if problem.pack in (self.pack, "")]
        reason = current_packs().disabled.get(self.pack)
        hint = f"`pip install --editable .` where the pyproject.toml of {PACKS.distribution_name(self.pack)} is"
        pytest.fail(
            "\n".join((f"The pack {self.pack!r} is not in use: {reason or hint}.", *wrong)),
            pytrace=False,
        )

    def _pack_in_use(self) -> LoadedPack | None:
        return next((pack for pack in loaded_packs() if pack.info.name == self.pack), None)

    @property
    def registrations(self) -> Sequence[Registration]:
        """Its converters as they are registered."""
        return self.loaded.pack.converters

    def _import_libraries(self) -> None:
        for library in self.imports:
            importlib.import_module(library)

    def _op_names(self) -> set[str]:
        """Returns the ops that the pack converts or decomposes, without those that give nothing back."""
        targets: Iterable[Any] = (
            *(registration.target for registration in self.registrations),
            *(
                decomposition.target
                for decomposition in self.loaded.pack.decompositions
                if gives_something(decomposition.target)
            ),
        )
        return {
            qualified_name(target)
            for target in targets
            if not isinstance(target, str)
            or target not in map(canonical_spelling, self.missing_ops)
        }

    def _sizes_of(self, case: OpCase) -> Sequence[str]:
        return [sizes for sizes in self.sizes if sizes == FIXED or case.varies] or [FIXED]

    def _overridden_cases(self) -> tuple[OpCase, ...]:
        loaded_pack = self._pack_in_use()
        high = tuple(
            converter.target
            for converter in (loaded_pack.pack.converters if loaded_pack else ())
            if converter.priority is ConverterPriority.HIGH
            and not isinstance(converter.target, str)
        )
        return cases_of_others(self.pack, high)

    def _readme(self) -> Path:
        if self.readme is not None:
            return self.readme
        for folder in Path(inspect.getfile(type(self))).resolve().parents:
            if (folder / "pyproject.toml").is_file() and (folder / "README.md").is_file():
                return folder / "README.md"
        pytest.fail(
            "No README.md stands beside a pyproject.toml above this test. Set `readme` to the page."
        )
