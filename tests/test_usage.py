"""Whatever is done with a compiled model gives eager's values, or an error that says what to do."""

import contextlib
import copy
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import torchtrt
from torchtrt.errors import EngineError, InputError, NoEngineWarning

X = torch.rand(4, 3)


@pytest.fixture
def model():
    """A small model whose weights are trainable, as models are."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def compiled(model, *inputs, **settings):
    """The model, compiled with blocks of any size."""
    return torchtrt.compile(model, inputs or (X,), **{"min_block_size": 1, **settings})


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}),
        lambda model: model[0].weight.detach().mul_(2),
        lambda model: nn.init.zeros_(model[2].bias),
    ],
    ids=["load_state_dict", "in place", "init"],
)
def test_a_weight_that_changed_is_an_error_that_names_it(model, change):
    """Engines hold the old values, and PyTorch's parts would have the new ones."""
    fast = compiled(model)
    fast(X)

    change(model)

    with pytest.raises(
        EngineError, match=r"weight '[02]\.(weight|bias)' has changed.*Compile again"
    ):
        fast(X)


@pytest.mark.parametrize(
    "replace",
    [
        lambda model: model.load_state_dict(
            {k: v + 1 for k, v in model.state_dict().items()}, assign=True
        ),
        lambda model: setattr(model[0], "weight", nn.Parameter(torch.ones(4, 3))),
    ],
    ids=["assign", "attribute"],
)
def test_a_weight_that_was_replaced_is_an_error_that_names_it(model, replace):
    """The model has another one in its place."""
    fast = compiled(model)

    replace(model)

    with pytest.raises(EngineError, match=r"weight '0\.(weight|bias)' has changed"):
        fast(X)


def test_a_weight_of_another_kind_is_the_same(model):
    """As where a user freezes it by making a buffer of it."""
    fast, expected = compiled(model), model(X)

    bias = model[0].bias
    del model[0].bias
    model[0].register_buffer("bias", bias)

    torch.testing.assert_close(fast(X), expected)


def test_a_model_is_called_while_another_thread_traces_it(model):
    """Tracing puts other tensors in the place of its weights meanwhile."""
    fast, expected, results = compiled(model), model(X), []

    def call_in_a_thread(*_):
        with ThreadPoolExecutor(1) as threads:
            results.append(threads.submit(fast, X).result())

    hook = model.register_forward_pre_hook(call_in_a_thread)
    torch.export.export(model, (X,))
    hook.remove()

    torch.testing.assert_close(results, [expected])


def test_sizes_that_depend_on_data_need_no_mode():
    """A result of unknown size is a part of a larger piece of memory, and may still be the caller's to use."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x[x[:, 0] > 0.5])

    model = Model().eval()
    result = compiled(model)(X)

    torch.testing.assert_close(result, model(X))
    with pytest.raises(EngineError, match="no gradients"):
        result.sum().backward()


def test_a_model_that_is_gone_is_not_missed(model):
    """Its weights are not kept alive to be watched."""
    expected, fast = model(X), compiled(model)

    del model

    torch.testing.assert_close(fast(X), expected)


def test_a_constant_of_a_weight_that_changed_is_an_error_without_engines_too(model):
    """Where PyTorch reads the weight itself, the next call has the new one."""
    settings = {"torch_executed_ops": {"aten.linear", "aten.relu"}}
    plain = compiled(model, **settings)
    with pytest.warns(NoEngineWarning):
        cast = compiled(model, autocast=torch.bfloat16, min_block_size=9, **settings)
    for module in (plain, cast):
        assert not module.report.blocks
    with torch.no_grad():
        model[0].weight.mul_(2)
    torch.testing.assert_close(plain(X), model(X))
    with pytest.raises(EngineError, match=r"'0\.weight' has changed"):
        cast(X)


def test_a_buffer_that_the_model_writes_to_may_change():
    """It is no constant of an engine."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    model = Counter().eval()
    fast = compiled(model)
    fast(X)
    model.count.fill_(10)

    torch.testing.assert_close(fast(X), X + 11)


def test_a_view_of_a_buffer_that_the_model_writes_to_changes_with_it():
    """A name for part of the buffer is no constant either."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2, 3))
            self.register_buffer("first", self.count[0])

        def forward(self, x):
            self.count.add_(1)
            return x + self.count

    fast = compiled(Counter().eval(), X[:2])
    fast(X[:2])

    torch.testing.assert_close(fast(X[:2]), X[:2] + 2)


def test_gradients_are_refused_where_they_are_asked_for(model):
    """A result requires grad where eager's does, and its ``backward`` is an error that says what to do."""
    fast, frozen = compiled(model), compiled(copy.deepcopy(model).requires_grad_(False))

    for function, x in ((fast, X), (frozen, X.clone().requires_grad_())):
        result = function(x)
        assert result.requires_grad
        with pytest.raises(EngineError, match=r"no gradients.*backend='torchtrt'"):
            result.sum().backward()
        result.mul_(2)  # a result is the caller's, as in eager
    with torch.no_grad():
        assert not fast(X.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, x: torch.autograd.functional.jacobian(model, x),
        lambda model, x: torch.autograd.functional.hessian(lambda x: model(x).sum(), x),
        lambda model, x: torch.autograd.grad(model(x).sum(), x, materialize_grads=True),
        lambda model, x: torch.autograd.grad(model(x).sum(), x, allow_unused=True),
        lambda model, x: model(x).sum().backward(inputs=[x]),
    ],
)
def test_gradients_of_the_inputs_alone_are_refused(model, ask):
    """They would be zeros, or none."""
    with pytest.raises(EngineError, match="no gradients"):
        ask(compiled(model), X.clone().requires_grad_())


def test_transforms_of_functions_are_refused(model):
    """They have tensors without memory."""
    fast = compiled(model)

    for transformed in (torch.vmap(fast), torch.func.grad(lambda x: fast(x).sum())):
        with pytest.raises(EngineError, match=r"torch\.vmap and torch\.func see no engines"):
            transformed(X[None] if transformed is torch.vmap else X)


def test_a_stale_model_is_not_pickled(model):
    """A reader of the pickle could not see it."""
    fast = compiled(model)
    fast(X)
    nn.init.zeros_(model[2].bias)

    with pytest.raises(EngineError, match=r"'2\.bias' has changed"):
        pickle.dumps(fast)


def test_a_view_of_an_input_that_requires_grad_is_refused():
    """It is the caller's own tensor, and its gradient would be lost without a word."""

    class View(nn.Module):
        def forward(self, x):
            return x.view(-1), x * 2 + 1

    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.reshape"}}
    fast = torchtrt.compile(View().eval(), (torch.rand(2, 3),), **settings)

    with pytest.raises(InputError, match="view of an input that requires grad"):
        fast(torch.rand(2, 3, requires_grad=True))


def test_a_frozen_model_gives_results_without_gradients(model):
    """As in eager."""
    model.requires_grad_(False)

    assert not compiled(model)(X).requires_grad


def test_training_mode_and_dtypes_are_compiled_in(model):
    """train(), half() and to(dtype) are errors; eval() and to(device) are not."""
    fast = compiled(model)

    with pytest.raises(EngineError, match="no training mode"):
        fast.train()
    for change in (fast.half, fast.double, lambda: fast.to(torch.bfloat16)):
        with pytest.raises(EngineError, match="dtype of a compiled model is compiled in"):
            change()
    fast.eval().to("cpu").float()
    with torch.no_grad():
        torch.testing.assert_close(fast(X), model(X))


def test_autocast_must_be_as_it_was(model):
    """Casts are compiled in: eager's values inside and outside, an error where they would differ."""
    plain = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cast = compiled(model)
        torch.testing.assert_close(cast(X), model(X), rtol=2e-2, atol=2e-2)
        assert torch.bfloat16 is cast(X).dtype
        with pytest.raises(EngineError, match="autocast"):
            plain(X)
    with pytest.raises(EngineError, match="autocast"):
        cast(X)


def test_inference_mode_is_as_good_as_no_grad(model):
    """Compiled outside or inside, called outside or inside."""
    expected = model(X).detach()
    fast = compiled(model)
    with torch.inference_mode():
        torch.testing.assert_close(fast(X), expected)
        torch.testing.assert_close(compiled(model)(X), expected)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: torch._subclasses.FakeTensorMode().from_tensor(X), "is a FakeTensor"),
        (lambda: X.to_sparse(), r"is a torch\.sparse_coo"),
    ],
    ids=["fake", "sparse"],
)
def test_an_input_that_no_engine_can_read_is_an_error(model, make, match):
    """Not memory that happens to lie somewhere."""
    with pytest.raises(InputError, match=match):
        compiled(model)(make())


def test_a_device_without_memory_is_an_error(model):
    """Whether the engine has run before or not."""
    fast = compiled(model)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"runs on CUDA and CPU tensors, and .* on meta"):
            fast(X.to("meta"))
        fast(X)


def test_a_traced_call_is_an_error(model):
    """A trace would record nothing of it."""
    fast = compiled(model.requires_grad_(False))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(EngineError, match=r"torch\.jit\.trace sees no engines"):
            torch.jit.trace(fast, X)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_forward_mode_is_an_error(model):
    """Tangents would be lost without a word."""
    fast = compiled(model.requires_grad_(False))

    with forward_ad.dual_level(), pytest.raises(EngineError, match="compute no gradients"):
        fast(forward_ad.make_dual(X, torch.ones_like(X)))
    torch.testing.assert_close(fast(X), model(X))


def test_a_pickled_model_computes_from_its_buffers_in_each_call():
    """PyTorch's reader takes what needs no input for a constant, and a write of it for done."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x) * self.calls

    expected = Counter().eval()
    ours = compiled(copy.deepcopy(expected), torch_executed_ops={"aten.add"})
    read = pickle.loads(pickle.dumps(ours))
    for _ in range(3):
        torch.testing.assert_close(read(X), expected(X))


def test_a_first_call_among_fake_tensors_leaves_none(model):
    """Memory that an engine keeps is real, whatever becomes of the call."""
    fast = compiled(model)

    with FakeTensorMode(allow_non_fake_inputs=True), contextlib.suppress(EngineError):
        fast(X)
    torch.testing.assert_close(fast(X), model(X))


def test_a_negated_view_has_its_sign():
    """The bit that PyTorch keeps in place of the sign does not reach an engine."""
    numbers = torch.tensor([1 + 3j, 2 - 1j, 3j]).conj().imag
    assert numbers.is_neg()

    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    torch.testing.assert_close(compiled(Double().eval(), numbers.clone())(numbers), numbers * 2)


@pytest.mark.parametrize("number", [3, float("nan"), True, None])
def test_a_number_must_be_the_one_that_was_compiled(number):
    """In kind, too: 3.0 would make floats of integers."""

    class Scale(nn.Module):
        def forward(self, x, number):
            return x if number is None else x * number

    x = torch.arange(4)
    fast = torchtrt.compile(Scale().eval(), (x, number), min_block_size=1)

    torch.testing.assert_close(fast(x, number), Scale()(x, number), equal_nan=True)
    for other in ({3, True, None} - {number}) | ({3.0} if number == 3 else set()):
        if type(other) is not type(number):
            with pytest.raises(InputError, match="compiled for"):
                fast(x, other)


@pytest.mark.filterwarnings("ignore:.*treespec.*:FutureWarning")  # PyTorch about its own class
def test_a_copy_and_a_loaded_module_work_without_the_model(model):
    """Their engines are the same; what they watch belongs to no model."""
    fast = compiled(model.requires_grad_(False))
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)

    for other in (copy.deepcopy(fast), torch.load(file, weights_only=False)):
        torch.testing.assert_close(other(X), model(X))


def test_autocast_to_another_dtype_is_an_error(model):
    """Also after saving: the casts are to what autocast was to."""
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cast = compiled(model)
        file = io.BytesIO()
        torchtrt.save(cast, file)
        for module in (cast, torchtrt.load(io.BytesIO(file.getvalue()))):
            assert module(X).dtype is model(X).dtype
            with (
                torch.autocast("cpu", dtype=torch.float16),
                pytest.raises(EngineError, match="inside another"),
            ):
                module(X)


def test_what_the_graph_holds_is_what_runs(model):
    """Another engine, another graph, and the hooks of an engine, also where one engine is the whole model."""
    fast, other = compiled(model), compiled(copy.deepcopy(model).requires_grad_(False))
    double = compiled(nn.Sequential(model, nn.Softmax(-1)).eval())
    seen = []
    fast(X)
    fast.graph_module.block_0.register_forward_hook(lambda *_: seen.append("hook"))
    torch.testing.assert_close(fast(X), other(X))
    assert seen == ["hook"]
    fast.graph_module.block_0 = double.graph_module.block_0
    torch.testing.assert_close(fast(X), double(X))
    other.graph_module = double.graph_module
    torch.testing.assert_close(other(X), double(X))
    torch.testing.assert_close(copy.deepcopy(other)(X), double(X))


def test_hooks_of_all_modules_see_engines(model):
    """And what they return counts, also where one engine is the whole model; not once they are removed."""
    fast = compiled(model.requires_grad_(False))
    expected, seen = fast(X), []

    def twice(module, _, outputs):
        seen.append(type(module))
        return tuple(output * 2 for output in outputs) if isinstance(outputs, tuple) else None

    hooks = [
        nn.modules.module.register_module_forward_hook(twice),
        nn.modules.module.register_module_forward_pre_hook(lambda *_: seen.append("before")),
    ]
    try:
        doubled = fast(X)
    finally:
        for hook in hooks:
            hook.remove()
    engine, whole = type(fast.graph_module.block_0), type(fast)
    assert seen == ["before", "before", engine, whole]
    torch.testing.assert_close(doubled, expected * 2)
    torch.testing.assert_close(fast(X), expected)


def test_compiling_draws_nothing_of_the_callers_random_numbers(model):
    """Inputs that are sizes only are made up without."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    compiled(model, torchtrt.Input(shape=(4, 3)))
    assert torch.rand(3).equal(expected)


class ReturnsItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        z = torch.fft.fft(self.linear(x))
        return x, self.linear(x), z.conj().imag


def test_a_call_leaves_its_inputs_as_they_are_and_returns_them_so():
    """Gradients that the model's weights ask for are no matter of its inputs; signs that are not yet computed stay."""
    model = ReturnsItsInput().eval()
    fast = compiled(model)
    plain = torch.randn(4, 3)
    for x in (plain, torch.randn(3, 4).t(), torch._neg_view(torch.randn(4, 3)), plain):
        version = x._version
        for _ in range(2):
            results = fast(x)
            torch.testing.assert_close(results, model(x))
            assert [result.requires_grad for result in results] == [False, True, True]
        assert (results[0] is x) is x.is_contiguous()  # what was contiguous in the example is so
        assert (x.requires_grad, x._version) == (False, version)
