"""The decoder: one small implementation of the Llama family."""
