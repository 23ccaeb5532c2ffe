import Reactor
import Testing
import Dialing

@testable import Gateway

@Suite struct DescriptorBudgetTests {
  @Test func aHighLimitAllowsTheConfiguredNumbers() {
    let budget = DescriptorBudget(limit: 1 << 20, inUse: 20, loops: 4, sessions: 1, clients: 16_384, management: 256)
    #expect(budget.clients == 16_384 && budget.management == 256 && budget.warning == nil)
  }

  @Test(arguments: [0, 64, 100, 128, 1_024, 4_096])
  func allocatedDescriptorsLeaveTheReserveFree(limit: Int) {
    let budget = DescriptorBudget(limit: limit, inUse: 20, loops: 4, sessions: 1, clients: 16_384, management: 256)
    #expect(budget.clients >= 1 && budget.management >= 1)
    let dealt = budget.clients + budget.management
    #expect(dealt <= max(2, limit - 20 - 4 - DescriptorBudget.reserve(sessions: 1)))
    #expect(
      budget.warning
        == "open-file limit \(limit) is below http.connections (16384): raise it with `ulimit -n` or lower the setting")
  }

  @Test func aLowLimitOnClientsLeavesManagementItsShare() {
    let budget = DescriptorBudget(limit: 1_024, inUse: 20, loops: 4, sessions: 1, clients: 100, management: 1_000)
    #expect(budget.clients == 100 && budget.management == 227)
    #expect(budget.warning?.contains("http.management_connections (1000)") == true)
  }

  @Test(arguments: [(64, 10), (1_024, 250), (1 << 20, 4_096)])
  func otherGatewaysHaveConnectionsOfTheirOwn(limit: Int, peers: Int) {
    let budget = DescriptorBudget(
      limit: limit, inUse: 20, loops: 4, sessions: 1, clients: 16_384, management: 256, hasPeers: true)
    #expect(budget.peers == peers && budget.clients >= 1 && budget.management >= 1)
    #expect(
      DescriptorBudget.redis >= 3 * ConnectRace.addressLimit + Resolver.threadCount * Resolver.descriptorsPerThread)
    let reserved = DescriptorBudget.reserve(sessions: 1) + 2 * peers + DescriptorBudget.redis
    #expect(budget.clients + budget.management <= max(2, limit - 20 - 4 - reserved))
  }

  /// A command needs two descriptors until it has started, and a hanging mount may delay the start.
  @Test func theReserveIsEnoughIfEveryFileAndCommandHangs() {
    let blocked = BlockingThreadPool.threadLimit * 2
    let lookUps = Resolver.threadCount
    #expect(DescriptorBudget.reserve(sessions: 1) >= blocked + lookUps + ConnectRace.addressLimit + 3 + 6)
  }

  @Test func eachSessionHasDescriptorsOfItsOwn() {
    #expect(DescriptorBudget.reserve(sessions: 1) == 89)
    #expect(DescriptorBudget.reserve(sessions: 2) == 89 + ConnectRace.addressLimit + 3)
    #expect(DescriptorBudget.reserve(sessions: 100) - DescriptorBudget.reserve(sessions: 99) == 3)
    let budget = DescriptorBudget(limit: 1_024, inUse: 20, loops: 2, sessions: 50, clients: 16_384, management: 256)
    #expect(budget.clients + budget.management <= 1_024 - 20 - 2 - 50 * 3)
  }

  @Test func eachRequestOfAWebhookHasADescriptor() {
    let first = DescriptorBudget.reserve(sessions: 8, webhooks: 1) - DescriptorBudget.reserve(sessions: 8)
    #expect(first == 1 + Resolver.threadCount * Resolver.descriptorsPerThread, "and they have a resolver")
    #expect(
      DescriptorBudget.reserve(sessions: 8, webhooks: 65) - DescriptorBudget.reserve(sessions: 8, webhooks: 1) == 64)
    let few = DescriptorBudget.reserve(sessions: 1, webhooks: 1) - DescriptorBudget.reserve(sessions: 1)
    #expect(few == first + ConnectRace.addressLimit)
  }

  private func budget(limit: Int, created: Int, clients: Int = 16_384) -> DescriptorBudget {
    DescriptorBudget(
      limit: limit, inUse: 20, loops: 4, sessions: 1, created: created, clients: clients, management: 256)
  }

  @Test func sessionsOfClientsGetTheRemainingDescriptors() {
    let rich = budget(limit: 1 << 20, created: 10_000)
    #expect(rich.clients == 16_384 && rich.created >= 10_000 && rich.warning == nil)
    #expect(budget(limit: 1_024, created: 0).created == 0)
  }

  @Test(arguments: [0, 100, 1_024, 4_096, 20_000, 40_000])
  func aLowLimitLeavesClientsThreeQuarters(limit: Int) {
    let (with, without) = (budget(limit: limit, created: 10_000), budget(limit: limit, created: 0))
    #expect(with.clients >= 1 && with.clients * 4 >= (without.clients - 256) * 3 - 256)
    let reserve = DescriptorBudget.reserve(sessions: 1, created: 10_000)
    #expect(with.clients + with.management + 3 * with.created <= max(2, limit - 24 - reserve))
    if limit <= 20_000 { #expect(with.warning != nil) }
  }
}
