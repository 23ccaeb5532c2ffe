import ByteStreams
import Host
import TLSEngine

/// The client of a request, as identified by its connection and the trusted proxies in front of it.
///
/// The value has no references except the certificate. The address of a usual client is read from the socket, and only
/// when it is needed.
package struct ClientConnection: Sendable {
  private enum Peer {
    case socket(Int32)
    case address(IPAddress?)
  }

  /// The origin for which the client's connections and requests are counted.
  package let origin: ClientOrigin
  /// The verified certificate of the client; nil if the client has sent no certificate.
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

  /// A client whose origin is known. Its address may no longer be known.
  init(origin: ClientOrigin, address: IPAddress?, certificate: ClientCertificate?, isSecure: Bool) {
    self.origin = origin
    self.certificate = certificate
    self.isSecure = isSecure
    peer = .address(address)
  }

  /// A client with this address. `address` is nil for a Unix-domain socket.
  package init(_ address: IPAddress?, certificate: ClientCertificate? = nil, isSecure: Bool = false) {
    origin = ClientOrigin(address)
    self.certificate = certificate
    self.isSecure = isSecure
    peer = .address(address)
  }

  /// The client's address; nil for a Unix-domain socket, and if the connection has ended.
  package var address: IPAddress? {
    switch peer {
    case .socket(let descriptor): (try? Sockets.peerAddress(of: descriptor))?.ip
    case .address(let address): address
    }
  }
}
