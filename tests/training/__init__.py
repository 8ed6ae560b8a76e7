"""Tests that train with a real stack of torch, DeepSpeed, transformers and PEFT."""
