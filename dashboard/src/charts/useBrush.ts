/** A pointer that points, and drags over a range of pixels. */
import { type PointerEvent, useRef, useState } from "react";
import type { Extent } from "../lib/scale";

interface Wish {
  from: number;
  to: number;
  onPoint: (pixel: number) => void;
  onLeave: () => void;
  onBrush: (from: number, to: number) => void;
}

/** A shorter way is a click. */
const SHORT = 6;

export function useBrush({ from, to, onPoint, onLeave, onBrush }: Wish) {
  const [range, setRange] = useState<Extent | null>(null);
  const began = useRef<number | null>(null);
  const pixelOf = (event: PointerEvent<SVGSVGElement>) =>
    Math.max(from, Math.min(to, event.clientX - event.currentTarget.getBoundingClientRect().left));
  const handlers = {
    onPointerDown: (event: PointerEvent<SVGSVGElement>) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      began.current = pixelOf(event);
      onPoint(began.current);
    },
    onPointerMove: (event: PointerEvent<SVGSVGElement>) => {
      const pixel = pixelOf(event);
      onPoint(pixel);
      if (began.current === null) return;
      const far = Math.abs(pixel - began.current) >= SHORT;
      setRange(far ? [Math.min(began.current, pixel), Math.max(began.current, pixel)] : null);
    },
    onPointerUp: () => {
      began.current = null;
      setRange(null);
      if (range) onBrush(...range);
    },
    onPointerCancel: () => {
      began.current = null;
      setRange(null);
    },
    onPointerLeave: onLeave,
  };
  return { range, handlers };
}
