// Browsers refuse workers on pages opened as files. There the site's search runs in a hidden frame instead.
class FrameWorker extends EventTarget {
  constructor(script) {
    super()
    this.frame = document.createElement("iframe")
    this.frame.hidden = true
    this.frame.srcdoc = `<script>postMessage = answer => parent.postMessage(answer, "*")</script><script src="${script}"></script>`
    this.loaded = new Promise(resolve => this.frame.addEventListener("load", resolve))
    window.addEventListener("message", event => {
      if (event.source === this.frame.contentWindow) {
        this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      }
    })
    document.body.append(this.frame)
  }

  // The frame's own postMessage is the one that answers, so the page's is called for the frame.
  async postMessage(question) {
    await this.loaded
    window.postMessage.call(this.frame.contentWindow, question, "*")
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker
}
