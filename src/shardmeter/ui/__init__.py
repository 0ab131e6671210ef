"""The page: a small local server that answers questions, and what the browser shows of them."""
