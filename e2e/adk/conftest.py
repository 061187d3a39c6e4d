import os
import pathlib
import sys

root = pathlib.Path(os.environ.get("AGENTWIRE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(root / "sdk" / "python" / "src"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "apps"))
sys.dont_write_bytecode = True
