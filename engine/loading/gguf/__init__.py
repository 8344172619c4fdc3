"""Reading GGUF files: tensors, configuration and tokenizer."""
