"""From a model name to weights, configuration and tokenizer."""
