"""The terminal app. It draws and asks; the engine works in a process of its own.

process/messages.py is all that passes between the two, state.py turns it into what is known,
view.py into what is shown, and the panels draw that. Only process/worker.py imports torch.
"""
