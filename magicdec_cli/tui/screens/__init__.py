"""The screens of the app: the main one, and the dialogs that open above it."""
