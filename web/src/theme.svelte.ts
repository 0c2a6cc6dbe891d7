// Dark or light: as the system says until the user chooses.

const kStorageKey = 'spa.theme';

type Scheme = 'light' | 'dark';

class Theme {
  scheme: Scheme = $state('light');

  constructor() {
    const system = matchMedia('(prefers-color-scheme: dark)');
    const Apply = () => this.Show(this.Saved() ?? (system.matches ? 'dark' : 'light'));
    system.addEventListener('change', Apply);
    Apply();
  }

  Toggle() {
    const scheme = this.scheme === 'dark' ? 'light' : 'dark';
    try {
      localStorage.setItem(kStorageKey, scheme);
    } catch {
      // Not remembered, but still shown.
    }
    this.Show(scheme);
  }

  private Saved(): Scheme | null {
    try {
      const saved = localStorage.getItem(kStorageKey);
      return saved === 'light' || saved === 'dark' ? saved : null;
    } catch {
      return null;
    }
  }

  private Show(scheme: Scheme) {
    this.scheme = scheme;
    document.documentElement.dataset.theme = scheme;
  }
}

export const theme = new Theme();
