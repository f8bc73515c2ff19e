"""A small colocated GRPO trainer: Megatron-core trains, SGLang generates, Ray places both on the same nodes."""
