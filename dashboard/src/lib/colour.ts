/** Colours as numbers: mixing in Oklab as CSS does it, and the contrast of WCAG 2. */

export type Rgb = [number, number, number];

/** A colour of the theme, by its variable's name: "--heat-1". */
export function themed(name: string): Rgb {
  return hex(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}

function hex(text: string): Rgb {
  const found = /^#([\da-f]{2})([\da-f]{2})([\da-f]{2})$/i.exec(text);
  if (!found) throw new Error(`${text} is not a colour as #rrggbb`);
  return [1, 2, 3].map((part) => parseInt(found[part] ?? "0", 16)) as Rgb;
}

export function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

const linear = (part: number) => {
  const value = part / 255;
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
};

const gamma = (value: number) => {
  const part = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, part)));
};

/** https://bottosson.github.io/posts/oklab/ */
function oklab(colour: Rgb): Rgb {
  const [r, g, b] = colour.map(linear) as Rgb;
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function rgb([lightness, a, b]: Rgb): Rgb {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/** So much of the one, the rest of the other. */
export function mix(one: Rgb, other: Rgb, share: number): Rgb {
  const from = oklab(other);
  const to = oklab(one);
  return rgb(from.map((part, index) => part + share * ((to[index] ?? 0) - part)) as Rgb);
}

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map(linear) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(one: Rgb, other: Rgb): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

const BLACK: Rgb = [0, 0, 0];
const WHITE: Rgb = [255, 255, 255];

/** Black or white, whichever can be read on it: one of them always has 4.5 : 1. */
export function inkOn(ground: Rgb): Rgb {
  return contrast(BLACK, ground) >= contrast(WHITE, ground) ? BLACK : WHITE;
}
