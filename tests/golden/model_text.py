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

# Twenty prompts for the peer's greedy answers. Two programs that round the inputs of products to 8 bits differ by some 0.1
# in log probability on this model, so on open-ended text, where the two most likely tokens are often closer than that,
# no two agree on 99 % of them. These prompts have answers that are mostly determined.
PROMPTS = [
    "Count from 1 to 40.",
    "Write the alphabet, one letter per line.",
    "List the days of the week in order, three times.",
    "Continue the sequence: 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70,",
    "Write the even numbers from 2 to 60, separated by commas.",
    "Write the multiplication table of 7.",
    "Copy this text exactly: The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog.",
    "Repeat this sentence ten times: A quire is a gathering of pages.",
    "Continue the sequence: 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130,",
    "Write a Python class Point with x and y and a method that returns the distance to another point.",
    "How do I boil an egg?",
    "Count down from 30 to 1.",
    "Write the numbers one to twenty as words.",
    "Write a C function that returns the larger of two integers.",
    "Write a list of twenty colors.",
    "Translate into French: I love you.",
    "Repeat after me: one two three four five six seven eight nine ten one two three four five six seven eight nine ten.",
    "Summarize: The cat sat on the mat. The cat sat on the mat. The cat sat on the mat.",
    "Copy this text exactly: Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do.",
    "Continue the sequence: 100, 101, 102, 103, 104, 105, 106, 107, 108, 109,",
]
