// Members of these modules' types are used all over this target.
@_exported import Configuration
@_exported import ProxyCodec
@_exported import WebSocketCodec

package typealias UpstreamURL = WebSocketURL
