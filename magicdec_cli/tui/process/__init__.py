"""The decoding process beside the app, and the messages between them."""
