import ByteStreams
import Reactor
import TLSEngine

/// The client of a request, as far as its connection and the trusted proxies before it show.
///
/// A value without references, but for the certificate. The address of the usual client is read from its socket when it is needed.
package struct ClientConnection: Sendable {
  private enum Peer {
    case socket(Int32)
    case address(IPAddress?)
  }

  /// By which the client's connections and requests are counted.
  package let origin: ClientOrigin
  /// The verified certificate of the client; nil if it has shown none.
  package let certificate: ClientCertificate?
  /// Whether the client has used HTTPS.
  package let isSecure: Bool
  private let peer: Peer

  /// The client at the other end of a socket.
  init(origin: ClientOrigin, socket: Int32, certificate: ClientCertificate?, isSecure: Bool) {
    self.origin = origin
    self.certificate = certificate
    self.isSecure = isSecure
    peer = .socket(socket)
  }

  /// A client whose origin is known although its address may not be any more.
  init(origin: ClientOrigin, address: IPAddress?, certificate: ClientCertificate?, isSecure: Bool) {
    self.origin = origin
    self.certificate = certificate
    self.isSecure = isSecure
    peer = .address(address)
  }

  /// A client with this address; nil for a Unix-domain socket.
  package init(_ address: IPAddress?, certificate: ClientCertificate? = nil, isSecure: Bool = false) {
    origin = ClientOrigin(address)
    self.certificate = certificate
    self.isSecure = isSecure
    peer = .address(address)
  }

  /// Its address; nil for a Unix-domain socket, and if the connection has ended.
  package var address: IPAddress? {
    switch peer {
    case .socket(let descriptor): (try? Sockets.peerAddress(of: descriptor))?.ip
    case .address(let address): address
    }
  }
}
