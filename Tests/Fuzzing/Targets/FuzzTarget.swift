/// One parser of untrusted bytes, with the properties that must hold for every input.
///
/// libFuzzer runs it with millions of inputs (`make fuzz`). The unit tests run it with the committed inputs.
package struct FuzzTarget: Sendable {
  package let name: String
  /// Maximum length of an input in bytes. Longer inputs find no more faults and take more time.
  package let longestInput: Int
  private let check: @Sendable (Span<UInt8>) throws(Finding) -> Void

  private init(
    _ name: String, longestInput: Int, _ check: @escaping @Sendable (Span<UInt8>) throws(Finding) -> Void
  ) {
    self.name = name
    self.longestInput = longestInput
    self.check = check
  }

  package func run(_ input: Span<UInt8>) throws(Finding) { try check(input) }

  package static var all: [FuzzTarget] {
    [
      FuzzTarget("request-head", longestInput: 512, RequestHeadTarget.run),
      FuzzTarget("chunked-body", longestInput: 256, ChunkedBodyTarget.run),
      FuzzTarget("websocket-frames", longestInput: 256, WebSocketFramesTarget.run),
      FuzzTarget("handshake-response", longestInput: 512, HandshakeResponseTarget.run),
      FuzzTarget("client-response", longestInput: 512, ClientResponseTarget.run),
      FuzzTarget("proxy-response", longestInput: 512, ProxyResponseTarget.run),
      FuzzTarget("proxy-header", longestInput: 320, ProxyHeaderTarget.run),
      FuzzTarget("resp", longestInput: 256, RESPTarget.run),
      FuzzTarget("replication-text", longestInput: 256, ReplicationTextTarget.run),
      FuzzTarget("inflate", longestInput: 256, InflateTarget.run),
      FuzzTarget("utf-8", longestInput: 192, UTF8Target.run),
      FuzzTarget("extension-header", longestInput: 256, ExtensionHeaderTarget.run),
      FuzzTarget("json", longestInput: 256, JSONTarget.run),
      FuzzTarget("configuration", longestInput: 512, ConfigurationTarget.run),
      FuzzTarget("query", longestInput: 128, QueryTarget.run),
      FuzzTarget("field-values", longestInput: 128, FieldValuesTarget.run),
      FuzzTarget("redirect-location", longestInput: 128, RedirectLocationTarget.run),
      FuzzTarget("netlink", longestInput: 256, NetlinkTarget.run),
      FuzzTarget("websocket-messages", longestInput: 256, WebSocketMessagesTarget.run),
      FuzzTarget("deflate", longestInput: 256, DeflateTarget.run),
      FuzzTarget("rendered-push", longestInput: 256, RenderedPushTarget.run),
      FuzzTarget("json-web-token", longestInput: 256, JSONWebTokenTarget.run),
      FuzzTarget("key-set", longestInput: 512, KeySetTarget.run),
      FuzzTarget("socketio", longestInput: 256, SocketIOTarget.run),
      FuzzTarget("variable-pattern", longestInput: 256, VariablePatternTarget.run),
      FuzzTarget("url-template", longestInput: 256, URLTemplateTarget.run),
      FuzzTarget("url-source", longestInput: 192, URLSourceTarget.run),
      FuzzTarget("session-host", longestInput: 64, SessionHostTarget.run),
      FuzzTarget("captures", longestInput: 256, CapturesTarget.run),
      FuzzTarget("token-file", longestInput: 256, TokenFileTarget.run),
    ]
  }
}
