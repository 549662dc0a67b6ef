r"""Whether a response answers its problem. A response is untrusted text: it is read, never evaluated.

One policy for each kind of thing that responses hold; "numbers" are GSM8K's answers, and those of MATH that are one
number. Countdown's answers are expressions; `countdown.py` and `expression.py` say how they are read.

Which part counts
    Of what is said after thinking (`<think>…</think>` is no answer), for GSM8K the first of these that there is: the
    line behind the last `####`; the last `\boxed{…}` or `\fbox`; the last `<answer>`; the rest of the sentence behind
    the last "answer is" or "Answer:"; the last word with a digit that does not begin with a letter. For MATH the same
    without `####` and without the last word; for Countdown `<answer>`, box, sentence, and the last line. If what stands
    there cannot be read, the response is wrong, whatever it says elsewhere. So of several the last one counts, also
    where one is recited in the middle, and text after it does not matter. "The answer is correct" (right, below …)
    announces nothing. Of what stands there the first line that is more than a mark of mathematics or code counts; below
    the announcement it may be an item of a list. A response that was cut in its thoughts cannot be told from an answer
    where `<think>` stands in the prompt: what was thought counts as said.
Headings
    A line behind `####` that begins with a word, or with a step's number and a word and is no sentence, announces no
    answer, and is followed by more text is passed over: `#### Step 2`, `#### 1. Eggs`, `#### (a) Eggs`; `#### 18 eggs`
    is an answer. Below `#### Answer` the last box counts, or else the next line.
Tags
    An `<answer>` that is not closed holds all that follows; a `</answer>` that was not opened marks nothing.
Boxes
    Braces are balanced; a box in a box is read as its content; if the last box is not closed, the response is wrong.
    Where there is none with braces, `\boxed 2` is one, too.
Special tokens (`<|im_end|>`, `</s>`)
    What follows the first that ends a turn is not said; others are left out at the end of a response.
Words that change a number
    "minus 5" is -5; "not 72", "half of 10", "less than 5", "at least 5", "5 squared", "5 or six" are no numbers, nor is
    72 in "x > 72". Words in `\text{…}` beside a formula are left out as units or remarks unless they negate, compare,
    multiply or join: those are read (`5\text{ million}`), or leave no answer (`\text{not }5`). Where the right answer
    is words or a choice, all words count: `\text{A or }B` is not B.
Empty, blank or tag-only answers; answers of more than 2,000 characters
    Always wrong.
Two answers ("72 or 73", `4, 5` for 4, `x = 4, x = 5`)
    Wrong, also at the end of running text, unless the right answer is such a list. Elements are counted: `1, 1` is not
    1. Sets have no order; points and intervals do, and their brackets count: `(1, 2)` is neither `1, 2` nor `[1, 2]`.
Reasons and remarks
    Left out: behind "answer is" what follows an answer from a word like "because" or "which" on; for GSM8K, words
    (`20 (twenty)`) and the same number (`72 (3 x 24)`) in parentheses behind a number. Not so if they may hold another
    answer: "or", "if", "maybe" and their like, "so" with a digit, another number (`72 (73)`, `72 (146/2)`).
Bold, "Final Answer:", "The answer is", math mode, layout commands, tags, `<<48/2=24>>`
    Left out. So are full stops, commas, colons at the end of an answer, `\underline`, for GSM8K `[ ]` around a number.
Digits and minus signs
    Decimal digits of every script, full-width ones too, are digits; every hyphen, en dash, and minus sign is a minus;
    an em dash is none. A minus may stand apart from its number in an answer, but in running text it is a bullet. ½ is
    1/2, x² is x^2, ① is no number.
Thousands separators
    Commas (also `{,}`, `,\!`, full-width and Arabic ones), `\,`, and no-break or thin spaces between groups of three
    digits. An ordinary space or an underscore separates nothing: `1 080` and `1_080` are wrong. The decimal sign is a
    point; `1,5` is no number. In MATH a comma before a space or within brackets separates elements: `(1,234)` is a
    point, `100, 200` are two numbers, and `(1{,}234, 5)` is a point again.
Currency, percent, degrees, units
    Left out, and not compared: `$72`, `72%`, `72^\circ`, `72 clips` are 72; 50% is 50, never 1/2. Right behind a number
    only well-known units are units (`72km`); other letters are variables (`3x`), also in `\mathrm{i}`. "hundred" to
    "trillion" multiply, also up to three in a row ("5 hundred thousand"); "2 and a half" is no number, nor are `72!`
    and `72...` in a box.
Decimals and fractions
    Exact: 72.0 is 72, 0.5 is 1/2, `0.\overline{3}` is 1/3, and 0.333333 is not; 3.14159 is not π. `1/2`, `\frac{1}{2}`,
    `\frac12` are one number whether or not they are in lowest terms; `1 1/2` and `1\frac{1}{2}` are 3/2. After
    `\approx` stands a remark, unless only a name stands before it.
Exponents
    `1e3`, `1.5 \times 10^{3}` and powers of one number are numbers, up to 1,000 digits; `9^{9^9}` and `9**9**9` are
    none.
Calculations that are not carried out
    Wrong where the right answer is a number (`2+3` for 5, `\sqrt{9}` for 3), and wherever they use functions, sums,
    factorials … and the right answer does not: otherwise repeating the question would be right. Formulas that are equal
    count, in whatever form: `2(k+1)` for `2k+2`. Of a chain of equations the last side counts: 24 of `48/2=24`.
Names and equations
    `x = 5` is 5, and not `y = 5`; `(x,y) = (1,2)` is `(1,2)`. Each side before the last has to be a name, something
    like `f(2)`, `\sin A` or `|z|`, words, or a calculation of numbers that is worth the last (as far as its decimals
    go; functions are not worked out, and let pass): `x^2 = 5` is not 5, `5 = 7` not 7, and `x+1 = x+2` not `x+2`. In
    running text the calculation is not checked. Where the right answer is an equation, one is asked for; it may be
    solved for another name, or a multiple: `x = y+1` is `y = x-1`. An equation in one variable is to be solved:
    `2x = 10` is not `x = 5`.
Letters
    Variables have case and primes (`f'` is not `f`), and their order in a product does not matter; in capitals alone,
    as of the segment `AB`, it does. Words (`\text{Evelyn}`) have no case, nor spaces or punctuation: `(C)` is C.
Intervals
    May be inequalities and the other way round: `0 \le x \le 1`, `x \in [0, 1]`, `[0, 1]` are one, whatever the name
    of the variable beside an interval; `\mathbb{R}` is `(-\infty, \infty)`.
Bases
    52_8 is neither 52_9 nor 42; 52 is right for 52_8, since the question asks for the base.
Costly answers
    Computer algebra has a time for each answer and for each batch, and limited memory; what takes more is wrong, and
    `why` says so. It runs in a process of its own (`worker.py`), which has no MPI, and is started again if it dies.
Hostile answers (imports, attributes, `0x10`, `1_0`, `__x__`)
    Wrong: they have not the form of an answer. Nothing is executed, and the next response is graded as ever.

Majority votes count `Verdict.extracted`: numbers in lowest terms (`1/2`), formulas as normalised text. Formulas that
only algebra finds equal are counted apart."""
