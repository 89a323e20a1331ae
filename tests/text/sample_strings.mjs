// Hostile strings for tokenizers: random mixtures of scripts, emoji, controls and special tokens; always the same for a seed.

// xorshift, so that every machine draws the same.
export function random(seed) {
  let state = BigInt(seed) * 0x9E3779B97F4A7C15n + 1n & 0xFFFFFFFFFFFFFFFFn;
  return below => {
    state ^= state << 13n & 0xFFFFFFFFFFFFFFFFn;
    state ^= state >> 7n;
    state ^= state << 17n & 0xFFFFFFFFFFFFFFFFn;
    return Number((state >> 11n) % BigInt(below));
  };
}

const words = `the quick brown fox jumps over lazy dogs don't we'll I'M they'RE it's 's 'S 'll can't HTTP/1.1 int main(void) return 0x7fff
  std::vector<int> naïve café Straße ÅNGSTRÖM İstanbul ſ K ﬁ`.split(/\s+/);
const scripts = [
  'абвгд ЖЗИ', 'αβγ Δ', 'עברית', 'العربية', 'हिन्दी में', 'ไทยแลนด์', '中文字符', 'ひらがなカタカナ', '한국어', 'ქართული', 'አማርኛ', '𝔘𝔫𝔦', '𐍈𐌰', '𞤀𞤣', 'ꓘꓲ',
  'e\u0301', 'n\u0303', 'a\u0323\u0307', '\u1100\u1161\u11a8', '\u0958', '\ufb49', '\u2126', '\u212b', 'q\u0307\u0323', 'ｆｕｌｌ',
];
const marks = [
  ' ', ' ', ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', '\u00a0', '\u2003', '\u3000', '\u180e', '\u200b', '\u200d', '\ufeff', '\u0085', '\u2028', '\0',
  '\u0007', '\u007f', '▁', '▁▁', 'Ġ', '.', ',', '...', '!?', '—', '"', '(', ')', '[', '$', '€', '#', '@', '_', '~', '`', '\\', '/', '-', '=', '+', '1', '23',
  '456', '7890', '12345678', '²', '½', 'Ⅷ', '٣', '१२', '<', '>', '|', '<0x41>', '<0xFF>', '{{', '%}',
];
const emoji = ['😀', '👍🏽', '👨‍👩‍👧‍👦', '🇩🇪', '❤️', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '☃', '⚡', '\ud83e\udd70', '\u{1fae0}', '\u{10ffff}', '\ue000', '\ufffd'];

export function randomString(below, special) {
  const pick = list => list[below(list.length)];
  let text = '';
  for (let n = 1 + below(12); n > 0; --n) {
    const kind = below(20);
    if (kind < 6) text += pick(words);
    else if (kind < 9) text += pick(scripts);
    else if (kind < 15) text += pick(marks);
    else if (kind < 17) text += pick(emoji);
    else if (kind === 17) text += pick(special);
    else if (kind === 18) text += pick(special).slice(0, -1 - below(2));
    else text += String.fromCodePoint(randomPoint(below));
  }
  return text;
}

function randomPoint(below) {
  const point = below(2) ? below(0x3000) : below(0x110000);
  return point >= 0xd800 && point < 0xe000 ? 0x41 : point;
}
