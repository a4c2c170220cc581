"""Text, written for this purpose, that the small test vocabulary is trained on: many scripts, code, numbers, spacing."""

PROSE = """
The ferry leaves the harbour at seven, and by noon the island is a blue line on the horizon. Nobody on deck speaks of the
storm that is coming; they're counting gulls, sharing bread, and they'll be home before the lamps are lit. It's an old
custom. We've kept it, I'm told, for as long as there has been a ferry, and we'd keep it if there weren't one.
"Don't," said the captain, "you'd better not: the water's colder than it looks!" SHE'LL REMEMBER WHAT THE CAPTAIN SAID.
Every morning the baker opens the door of the small shop on the corner and puts out the sign that says fresh bread. People
come from the streets around the square, some with children, some with dogs, and they talk about the weather and the price
of flour. In the afternoon, when the light falls through the high windows, the room becomes quiet, and there is time to
write down the numbers of the day: 12 loaves, 48 rolls, 3.5 kg of butter, 1,024 biscuits, 99% sold before 16:30.
Der Zug fährt über die Brücke, während die Kinder im Garten spielen; größere Städte grüßen später. Schöne Grüße aus Köln!
Les élèves étudient l'été à l'école; ça dépend où, peut-être près du château, disait-elle. Déjà vu ? Voilà, c'est ça.
El niño comió piñas mañana por la mañana, ¿verdad? ¡Sí! La cigüeña voló sobre el corazón de la ciudad.
L'amica è più felice perché può viaggiare; così è la città. Não há coração sem emoção, disse a avó às irmãs.
Žluťoučký kůň příšerně úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép. İstanbul'da ışık ve ağaç.
Мы идём по улице, и город просыпается; хлеб пахнет, дети смеются, река течёт к морю. Україна має гарні їжачки й ґанок.
Η θάλασσα είναι ήρεμη σήμερα και το πλοίο φεύγει νωρίς το πρωί· πού πηγαίνεις, φίλε μου;
השמש זורחת מעל הים והילדים משחקים בחול. שלום, מה שלומך היום? القمر جميل الليلة، والبحر هادئ. أهلاً وسهلاً بكم في المدينة ١٢٣٤.
सूरज सुबह निकलता है और बच्चे विद्यालय जाते हैं। नमस्ते दुनिया, क्षत्रिय ज्ञान १२३४५। நான் தமிழ் பேசுகிறேன்; வணக்கம் உலகம்.
เช้านี้ฝนตกที่กรุงเทพ น้ำไหลแรงมาก ผู้คนเดินไปตลาด ภาษาไทยไม่มีวรรคระหว่างคำ ๑๒๓
今天早上我们去市场买水果，然后坐船到对面的小岛上看朋友。中文没有空格，所以分词很有意思。你好，世界！二〇二四年十二月三十一日。
今日は朝から雨が降っています。ひらがなとカタカナと漢字が混ざった文章です。ありがとうございます、コンピューター。
오늘 아침에 우리는 시장에 가서 과일을 샀습니다. 안녕하세요 세계! 한국어 문장은 띄어쓰기를 합니다.
Chào buổi sáng, hôm nay trời đẹp quá; chúng tôi đi chợ mua trái cây và uống cà phê sữa đá.
"""

CODE = """
def add(first, second):
    # returns the sum of two numbers
    if first is None or second is None:
        return None
    for index in range(len(values)):
        result[index] += first * second  # 0x1F
    return first + second

int main(int argc, char **argv) {
\tfor (size_t i = 0; i < n; i++) {
\t\tif (table[i] != NULL && strcmp(table[i]->name, key) == 0) return (int)i;
\t}
\treturn -1;
}

{"name": "value", "list": [1, 2, 3, 10, 100, 1000], "ok": true, "none": null, "nested": {"key": [{"a": "b"}]}}
<div class="row"><a href="https://example.org/path?query=1&page=2">link</a></div>
SELECT name, count(*) FROM users WHERE id >= 100 GROUP BY name ORDER BY 2 DESC;
$ curl -s http://localhost:8000/v1/models | jq '.data[0].id' >/dev/null 2>&1 || echo "failed: $?"
int32_t max_tokens = 4096; const char *HTTP_HEADER = "Content-Type: application/json";
================================ -------------------------------- ******** ######## ........ ________
"""

SYMBOLS = """
👍👍 👩‍👩‍👧‍👦 🏳️‍🌈 👋🏽 🇩🇪🇫🇷 ❤️ 😀😃😄 🎉✨🔥 → ← ↔ ≤ ≥ ≠ ∑ ∫ √ ∞ α β γ π ° µ € £ ¥ § © ® ™ ½ ¼ ² ³ Ⅳ Ⅻ № … — – “quoted” ‘single’ «guillemets» ‹›
"""


def texts():
    """Words weigh as in longer text: each piece is given several times, whole and cut at different places."""
    lines = [line for part in (PROSE, CODE, SYMBOLS) for line in part.split("\n")]
    for width in (1, 2, 3):
        for i in range(0, len(lines) - width):
            yield "\n".join(lines[i : i + width]) + "\n"
    for n in range(0, 1000, 7):
        yield "%d %d.%02d  %s\n\n" % (n, n, n % 100, " " * (n % 17))
