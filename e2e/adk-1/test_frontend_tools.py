"""The toolset tests in a runner of ADK 1.x."""

import importlib.util
import pathlib

_path = pathlib.Path(__file__).resolve().parents[1] / "adk" / "test_frontend_tools.py"
_spec = importlib.util.spec_from_file_location("frontend_tools_of_2x", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({name: value for name, value in vars(_module).items() if name.startswith("test_")})
