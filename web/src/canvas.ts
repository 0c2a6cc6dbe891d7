// A canvas element sized in CSS pixels and sharp on dense screens.

export function PrepareCanvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio || 1;
  const device_width = Math.round(width * scale);
  const device_height = Math.round(height * scale);
  // Assigning a size clears the canvas and is slow, so only when it changed.
  if (canvas.width !== device_width) canvas.width = device_width;
  if (canvas.height !== device_height) canvas.height = device_height;
  const context = canvas.getContext('2d')!;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

// Colors live in style.css alone; drawing asks for them by name.
export function Color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
