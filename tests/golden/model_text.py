"""The text of the golden files: openings of books in the public domain, and a few lines written for this purpose."""

TEXT = """Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or \
twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, "and what is \
the use of a book," thought Alice, "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid), \
whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies, when \
suddenly a White Rabbit with pink eyes ran close by her.

It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. \
However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so \
well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other \
of their daughters.

Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and \
dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether \
that nation, or any nation so conceived and so dedicated, can long endure.

A quire is a gathering of 24 or 25 sheets of paper; twenty quires make a ream. In 2 cores and 24 GiB of memory a small \
server can answer many people at once, if it keeps what they share in pages and computes each step for all of them.

int sum(const int *values, size_t n) {
    int total = 0;
    for (size_t i = 0; i < n; i++) total += values[i];
    return total;
}

SELECT customer, count(*) AS orders FROM sales WHERE year = 2024 GROUP BY customer ORDER BY orders DESC;

Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and nothing \
particular to interest me on shore, I thought I would sail about a little and see the watery part of the world.

Les sanglots longs des violons de l'automne blessent mon coeur d'une langueur monotone.
"""

# Twenty questions and openings for the peer's greedy answers.
PROMPTS = [
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about the sea.",
    "List five uses of a paper clip.",
    "How do I boil an egg?",
    "What is 17 plus 25? Show your work.",
    "Translate 'good morning' into Spanish and German.",
    "Write a Python function that reverses a string.",
    "Who wrote Pride and Prejudice, and when was it published?",
    "Summarize the story of Little Red Riding Hood.",
    "What are the three states of matter?",
    "Give me advice for a job interview.",
    "Describe a rainy day in a small town.",
    "What is the difference between a virus and a bacterium?",
    "Name the planets of the solar system in order.",
    "Write an email asking a colleague for a meeting on Tuesday.",
    "Why do leaves change color in autumn?",
    "Tell me a joke about computers.",
    "How does a bicycle stay upright?",
    "Write a SQL query that counts the orders of each customer.",
]
