"""What a run takes of memory, what is free, and what happens when it is exhausted."""
