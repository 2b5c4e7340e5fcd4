// The search of the site runs in a worker, which browsers refuse to pages that were opened from the disk. There a frame
// takes its place: the same script, the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = () => undefined;
      const script = frame.contentDocument.createElement("script");
      this.isLoaded = new Promise((resolve) => (script.onload = resolve));
      script.src = new URL(url, document.baseURI).href;
      frame.contentDocument.body.append(script);
      this.terminate = () => frame.remove();
    }

    async postMessage(data) {
      await this.isLoaded;
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
}
