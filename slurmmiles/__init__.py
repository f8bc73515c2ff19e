"""slurmmiles: one command puts a colocated Megatron + SGLang RL run on a Slurm allocation."""

__version__ = "0.1.0"
