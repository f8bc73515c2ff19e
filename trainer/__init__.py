"""Colocated GRPO: Megatron-core trains and SGLang generates on the same nodes, placed by Ray."""
