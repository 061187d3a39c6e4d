"""The tests of `AGUIAdapter` with LangGraph 0.6 and ag-ui-protocol 0.1."""

import importlib.util
import pathlib

_path = pathlib.Path(__file__).resolve().parents[1] / "python" / "test_adapter.py"
_spec = importlib.util.spec_from_file_location("adapter_of_langgraph_1", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items() if name.startswith("test_")})
# AG-UI 0.1 has no outcome: the question is a CUSTOM event, and its answer a command.
del test_interrupt_and_answer  # noqa: F821


def test_interrupt_and_answer_by_custom_events():
    adapter = _module.AGUIAdapter(_module.node_graph(_module.ask, checkpointer=_module.InMemorySaver()))
    first = _module.run(adapter)
    (asked,) = [event for event in first if isinstance(event, _module.CustomEvent)]
    assert asked.name == "on_interrupt" and "ok?" in str(asked.value)
    answer = _module.request(run="r2", forwardedProps={"command": {"resume": "yes"}})
    second = _module.run(adapter, answer)
    text = "".join(getattr(event, "delta", None) or "" for event in second if "TEXT" in event.type.value)
    assert second[-1].run_id == "r2" and "you said yes" in text
