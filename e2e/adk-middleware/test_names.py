"""Every public name of the original is there, under its path, with its parameters."""

import inspect
from importlib import import_module

import pytest

MODULES = """
endpoint base_abc.handler base_abc.sse_service data_model.common data_model.config data_model.context data_model.error
data_model.event data_model.queue data_model.session event.agui_event event.agui_type event.error_event handler.queue
handler.session_lock_handler manager.queue service.history_service service.sse_service service.state_service
tools.async_queue_iterator tools.default_config_context tools.frontend_tool tools.shutdown utils.translate
utils.translate.common utils.translate.function_calls utils.translate.message utils.translate.state
utils.translate.thinking
""".split()


def parameters(thing):
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [parameter.name for parameter in found if parameter.kind not in kinds]


def public(module):
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        if not name.startswith("_") and is_own and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


@pytest.mark.parametrize("path", MODULES)
def test_a_module(path):
    original = import_module(f"adk_agui_middleware.{path}")
    ours = import_module(f"agentwire.adk.compat.{path}")
    names = list(public(original)) or [(name, getattr(original, name)) for name in original.__all__]
    assert names
    for name, value in names:
        found = getattr(ours, name)
        wanted = parameters(value)
        assert parameters(found)[: len(wanted)] == wanted or set(wanted) <= set(parameters(found)), name
        if not inspect.isclass(value):
            continue
        for method, function in vars(value).items():
            if method.startswith("_") or not callable(getattr(value, method)) or method == "model_config":
                continue
            wanted = [name for name in parameters(getattr(value, method)) if name != "_"]
            assert set(wanted) <= set(parameters(getattr(found, method))), f"{name}.{method}"


def test_the_package_itself():
    import adk_agui_middleware
    import agentwire.adk
    import agentwire.adk.compat

    for name in adk_agui_middleware.__all__:
        assert hasattr(agentwire.adk.compat, name) and hasattr(agentwire.adk, name)
    for name in agentwire.adk.compat.__all__:
        assert getattr(agentwire.adk, name) is getattr(agentwire.adk.compat, name)
