// What a tab keeps for itself while it is open: in sessionStorage, or in memory where the browser refuses that.

const memory = new Map();

function inStorage(use, otherwise) {
  try {
    return use(sessionStorage);
  } catch {
    return otherwise();
  }
}

export const ofTab = {
  get: (key) => inStorage((storage) => storage.getItem(key), () => memory.get(key) ?? null),
  set: (key, text) => inStorage((storage) => storage.setItem(key, text), () => memory.set(key, text)),
  remove: (key) => inStorage((storage) => storage.removeItem(key), () => memory.delete(key)),
};
