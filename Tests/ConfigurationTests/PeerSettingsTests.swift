import Host
import Reactor
import Testing

@testable import Configuration

@Suite struct PeerSettingsTests {
  @Test func aGatewayIsReachedAtItsAddress() throws {
    let settings = try load("listeners: {peers: [':9091'], peer_address: 10.0.0.5:9091}").settings
    #expect(settings.listeners.peers == [.ipv4(0, port: 9091)])
    #expect(settings.listeners.peerAddress == .ipv4(0x0A00_0005, port: 9091))
    #expect(try load("listeners: {peers: ['10.0.0.5:9091']}").settings.listeners.peerAddress == nil)
    #expect(try load().settings.listeners.peers.isEmpty)
  }

  @Test(arguments: [
    ("peers: [':9091']", "'listeners.peers' listens on every address"),
    ("peer_address: 10.0.0.5:9091", "has no effect without"),
    ("peers: ['unix:/run/a']", "other gateways are on other machines"),
    ("peers: ['127.0.0.1:8080']", "another listener uses this address"),
    ("peers: ['10.0.0.5:1'], peer_address: ':1'", "an IP address of this machine and a port"),
    ("peers: ['10.0.0.5:1'], peer_address: 10.0.0.5:0", "an IP address of this machine and a port"),
    ("peers: ['10.0.0.5:1'], peer_address: 'unix:/a'", "an IP address of this machine and a port"),
  ])
  func refusesAddressesThatOtherGatewaysCannotReach(text: String, message: String) {
    let found = errors("listeners: {\(text)}")
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }
}
