import os
import pathlib
import sys

ROOT = pathlib.Path(os.environ.setdefault("AGENTWIRE_ROOT", str(pathlib.Path(__file__).resolve().parents[2])))
os.environ.setdefault("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
sys.path.insert(0, str(ROOT / "sdk" / "python" / "src"))
sys.dont_write_bytecode = True
